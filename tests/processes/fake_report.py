"""A report program for tests: notes what it was told, and answers what a file says.

`fake_report.py ANSWERS SEEN DATABASE RUN OP`: ANSWERS is a JSON object, op to [exit code, text]; SEEN gets one line.
"""

import json
import sys
from pathlib import Path


def main() -> int:
    answers, seen, database, run, op = sys.argv[1:]
    message = json.load(sys.stdin)
    with open(seen, "a", encoding="utf-8") as handle:
        handle.write(json.dumps({"argv": [database, run, op], "message": message}) + "\n")
    code, text = json.loads(Path(answers).read_text()).get(op, [1, ""])
    print(text)
    return int(code)


sys.exit(main())
