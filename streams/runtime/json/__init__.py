"""JSON records of foreign topics to columns, with the promises of the Avro decoder.

Read `decoder` first (the promise), then `fields` (which JSON value is which column).
"""

from streams.runtime.json.decoder import JsonDecoder

__all__ = ["JsonDecoder"]
