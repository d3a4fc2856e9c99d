"""The compiled functions, in Numba: arrays in, arrays out; nothing above is imported here."""
