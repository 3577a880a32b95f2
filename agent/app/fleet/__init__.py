"""All nodes of a cluster at one moment, from what each published of itself (`fleet.publish`). Reads only.

    source            lists of objects: from the API server with the caller's rights, or from files
    reading           one pass over them: the fleet
    values            what a fleet is; what is missing is a named value

Used by `numalign fleet` and `numalign simulate --cluster`. Modules are imported by their own names.
"""
