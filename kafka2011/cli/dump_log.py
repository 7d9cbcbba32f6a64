"""`kafka2011 dump-log`: print and check the entries of segment files."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kafka2011.cli.output import fail, printable

app = typer.Typer(add_completion=False)


@app.command()
def dump(
    paths: Annotated[
        list[Path], typer.Argument(help="segment files, or partition directories", exists=True)
    ],
    *,
    no_print: Annotated[
        bool, typer.Option("--no-print", "-noprint", help="omit the payloads")
    ] = False,
    only_summary: Annotated[
        bool, typer.Option("--summary", help="only a verdict for each file")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="print JSON lines: entries, then the summary; or cuts")
    ] = False,
    cut: Annotated[
        bool,
        typer.Option(
            "--truncate-corrupt",
            help="cut the newest segment of a stopped broker after its last whole entry before "
            "the damage; the rest is copied first",
        ),
    ] = False,
    quarantine: Annotated[
        Path | None, typer.Option(help="directory of the copy (default: <log.dir>-quarantine)")
    ] = None,
) -> None:
    """Print every entry and a verdict: clean, torn (a write did not finish), corrupt,
    or not a log at all.

    For example: kafka2011 dump-log /tmp/kafka2011-logs/clicks-0

    Exits with 1 when a file is not clean. Without --truncate-corrupt it only reads: a broker may
    run on the files, and then the newest one may look torn for a moment.
    """
    from kafka2011.broker.log.dump import segment_paths, truncate_corrupt
    from kafka2011.broker.log.errors import DataDirectoryError

    is_clean = True
    try:
        if cut:
            for path in paths:
                copy = truncate_corrupt(path, quarantine)
                if as_json:
                    print(json.dumps({"path": str(path), "copy": str(copy) if copy else None}))
                else:
                    print(f"{path}: {f'cut, copy in {copy}' if copy else 'clean, nothing to cut'}")
            raise SystemExit(0)
        for path in paths:
            segments = segment_paths(path)
            if not segments:
                inside = any(segment_paths(child) for child in path.iterdir() if child.is_dir())
                hint = "; give the partitions' directories in it" if inside else ""
                fail(f"no segment in {path}{hint}", 2, command="dump-log")
            for segment in segments:
                is_clean &= _dump_one(segment, no_print, only_summary, as_json)
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(0) from None
    except DataDirectoryError as error:
        print(f"kafka2011 dump-log: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename is None:  # the output
            raise
        print(f"kafka2011 dump-log: {error.filename}: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from None
    raise SystemExit(0 if is_clean else 1)


def _dump_one(path: Path, no_print: bool, only_summary: bool, as_json: bool) -> bool:
    from kafka2011.broker.log import dump as dumping

    found = dumping.summary(path)
    if not as_json:
        print(f"Dumping {path}")
        print(f"Starting offset: {found.start_offset}")
    if not only_summary:
        for entry in dumping.entries(path):
            if as_json:
                print(json.dumps(dumping.as_record(entry, not no_print)))
                continue
            print(dumping.as_text(entry))
            if not no_print:
                print(f"payload:\t{printable(entry.payload)}")
    if as_json:
        print(json.dumps({**asdict(found), "tail_offset": found.tail_offset}))
    else:
        print(f"tail of the log is at offset: {found.tail_offset}")
        print(
            f"verdict: {found.verdict}"
            f"{f' ({found.reason})' if found.reason else ''}; {found.entry_count} entries, "
            f"{found.valid_bytes} of {found.size_bytes} bytes"
        )
    return found.verdict == "clean"
