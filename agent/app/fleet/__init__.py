"""All nodes of a cluster at one moment, from what each published of itself (`fleet.publish`). Reads only.

    source            lists of objects: from the API server with the caller's rights, or from files
    reading           one pass over them: the fleet
    objects           what a list has of each object

What a fleet is stands in `agent.forecast.fleet.values`; what is missing is a named value.

Used by `numalign fleet` and `numalign simulate --cluster`. Modules are imported by their own names.
"""
