"""SHOWS: what people see of a run, on a terminal and as a page.

terminal         progress bars, lines of a log, JSON events, and summaries
read_record      the record of a run, read and checked
page             the page of a run or a search, and which sections it has
comparison_page  the page of several runs side by side
fit_page         sections on certificate, memory and time
quality_page     sections on the quality of the model: measures, errors, probabilities, margins
model_figures    sections on coefficients and drift
settings_table   settings as people write them
search_page      the page of a search
chart            axes and charts in SVG
html             elements, escaping, style and colors
"""
