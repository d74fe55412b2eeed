"""What the stores on disk have in common.

files.py       files and folders that are on disk for certain
"""
