"""What many marks meant: sentences taken from them, each with its sources."""

from mica.crystallize.digest import Digest, Dropped, Reason, Source, Statement, count_mentions, extract, in_time
from mica.crystallize.mood import Mood, blend, mood, similarity
from mica.crystallize.salience import Mentions, Table, Tally, merge, shipped, signals
from mica.crystallize.sentences import split
from mica.crystallize.units import units

__all__ = [
    "Digest",
    "Dropped",
    "Mentions",
    "Mood",
    "Reason",
    "Source",
    "Statement",
    "Table",
    "Tally",
    "blend",
    "count_mentions",
    "extract",
    "in_time",
    "merge",
    "mood",
    "shipped",
    "signals",
    "similarity",
    "split",
    "units",
]
