"""Studies: several runs, compared with their controls."""
