"""Format states as text: tables, a job's page, progress. Makes no requests.

Only ``screen`` knows of a terminal: text is the same in a pipe, but for a width.
"""
