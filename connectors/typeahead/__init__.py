"""The edge of typeahead: the blocklist, in every process that suggests."""
