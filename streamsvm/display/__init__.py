"""The display of a run: progress and results on a terminal, and HTML pages.

terminal         progress bars, lines of a log, JSON events, and summaries
read_record      reads and checks the record of a run
page             the page of a run or a search: its sections, and where the model comes from
comparison_page  the page that compares several runs
fit_page         sections on certificate, memory and time
quality_page     sections on the quality of the model: measures, errors, probabilities, margins
model_figures    sections on columns, coefficients and drift
settings_table   settings as text
search_page      the page of a search
chart            axes and charts in SVG
html             elements, escaping, the document, style and colors
"""
