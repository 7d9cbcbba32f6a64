"""spark-submit spark-jobs/stream.py NAME [FILE.properties] [--set name=value] [--once]

Runs one stream job: windows, joins, the top items of each minute. The logic is in
`services.warehouse`; `kafka2011 stream` is the same without spark-submit.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # a checkout that is not installed
    sys.path.insert(0, str(ROOT))

from kafka2011.cli.stream import app  # noqa: E402

if __name__ == "__main__":
    app(prog_name="stream.py")
