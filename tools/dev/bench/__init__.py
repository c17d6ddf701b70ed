"""Measurements against peers and limits of the same machine in the same run: figures and ratios, never tests.

A figure means little alone: each work is done by us and by the other side in turn, several times, and the ratio of the
medians is printed with the goal that the project set itself. Tables are for people, a JSON object a line for programs.
"""
