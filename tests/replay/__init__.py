"""Discovery against recorded, described and broken machines."""
