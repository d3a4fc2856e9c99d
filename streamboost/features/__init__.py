"""Any row becomes floats: reading, encoding, labels, standardizing, binning."""
