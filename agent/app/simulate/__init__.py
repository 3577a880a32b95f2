"""`numalign simulate`: from what was asked to figures.

    simulate          one result per variant of the settings; scenario: what happens after the first pods
    figures           per variant, node and pod, and the JSON that programs read

Modules are imported by their own names.
"""
