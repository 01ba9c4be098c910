"""Usage as pictures: series from windows, plots for terminals, figures for reports. From the same data.

Nothing here asks a store or prints; terminal plots are lines of marks, coloured by the code that prints them.
"""
