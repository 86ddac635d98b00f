"""SHOWS: what people see of a run, on a terminal and as a page.

terminal       progress bars, lines of a log, JSON events, and summaries
read_record    the record of a run, read and checked
page           the page of one run, or of several side by side
fit_page       its sections on certificate, memory and time
quality_page   its sections on the quality of the model: measures, errors, probabilities, margins
model_figures  its sections on coefficients and drift
search_page    the page of a search
chart          axes and charts in SVG
html           elements, escaping, style and colors
"""
