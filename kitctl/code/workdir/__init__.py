"""The working folder that is sent with a job (``workdir``): which files, and their content.

``selection`` decides; ``listing`` and ``reading`` look at the folder, ``collecting`` puts it together. Where the files
go is the targets' business. Imports nothing: most verbs send no folder.
"""
