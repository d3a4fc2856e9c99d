"""The loops over rows: the plain one, and the compiled ones of trees and networks."""
