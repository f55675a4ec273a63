"""The book of docs/ for mdbook: its sources with everything that they link to, and a check of the links of its pages.

site.py prepare OUT       copies docs/ to OUT. Files outside of docs/ that pages link to come along below OUT/files, so
                          that the site is whole by itself; with an address in Cargo.toml (`repository`) their links
                          lead there instead. Fails on a link to a file that is not there.
site.py check BOOK        fails, and names them, on links of the built book that lead nowhere or out of it.
"""

import pathlib
import re
import shutil
import sys
from html.parser import HTMLParser
from posixpath import dirname, normpath, relpath
from urllib.parse import unquote

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Code, which stays as it is; or the target of a link.
LINK = re.compile(r"^```.*?^```|``.*?``|`[^`\n]*`|(?<=\]\()[^)\s]+(?=\))", re.MULTILINE | re.DOTALL)


def links(text, replace):
    """`text` with `replace(path)` for each target in this repository; anchors stay."""

    def one(match):
        target = match.group()
        path, mark, anchor = target.partition("#")
        if target[0] == "`" or not path or re.match(r"[a-z]+:", path):
            return target
        return replace(path) + mark + anchor

    return LINK.sub(one, text)


def heading(file):
    """The first heading of the page `file`."""
    return re.search(r"^# (.+)$", (ROOT / file).read_text(), re.MULTILINE).group(1)


def repository():
    """The address of the repository's site, or None while Cargo.toml has none."""
    address = re.search(r'^repository = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)
    return None if ".invalid" in address else address


def prepare(out):
    sources = (ROOT / "docs").resolve()
    target = pathlib.Path(out).resolve()
    if sources.is_relative_to(target) or target.is_relative_to(sources):
        sys.exit(f"{out} holds the sources of the book, or lies in them: name another directory")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs", out)
    address, wrong, included = repository(), [], []
    waiting = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))

    def place(file):
        return file.removeprefix("docs/") if file.startswith("docs/") else f"files/{file}"

    while waiting:
        page = waiting.pop(0)

        def lead(path):
            file = normpath(f"{dirname(page)}/{path}")
            if file.startswith("../") or not (ROOT / file).is_file():
                wrong.append(f"{page}: {path}")
                return path
            if file.startswith("docs/"):
                return relpath(place(file), dirname(place(page)) or ".")
            if address:
                return f"{address}/blob/HEAD/{file}"
            if file not in included:
                included.append(file)
                if file.endswith(".md"):
                    waiting.append(file)
                else:
                    (out / place(file)).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(ROOT / file, out / place(file))
            return relpath(place(file), dirname(place(page)) or ".")

        text = links((ROOT / page).read_text(), lead)
        (out / place(page)).parent.mkdir(parents=True, exist_ok=True)
        (out / place(page)).write_text(text)
    pages = [file for file in included if file.endswith(".md")]
    if pages:
        # mdbook makes pages only of what is in the contents.
        with open(out / "SUMMARY.md", "a", encoding="utf-8") as contents:
            contents.write("\n# Formats\n\n")
            contents.writelines(f"- [{heading(file)}]({place(file)})\n" for file in pages)
    return wrong


class Page(HTMLParser):
    """Targets of links and pictures, and the anchors, of a page."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if attrs.get("id"):
            self.anchors.add(attrs["id"])
        target = attrs.get("href") if tag == "a" else attrs.get("src") if tag == "img" else None
        if target:
            self.targets.append(unquote(target))


def check(book):
    book = book.resolve()
    pages = {path: Page(path.read_text()) for path in book.rglob("*.html") if path.name not in ("print.html", "toc.html")}
    wrong = []
    for path, page in pages.items():
        name = path.relative_to(book)
        for target in page.targets:
            file, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", file) or name.name == "404.html":
                continue
            to = (path.parent / file).resolve() if file else path
            if not to.is_relative_to(book):
                wrong.append(f"{name}: {target} leaves the book")
            elif not to.is_file() or to.suffix == ".md":
                wrong.append(f"{name}: {target} is not there")
            elif anchor and to in pages and anchor not in pages[to].anchors:
                wrong.append(f"{name}: {target} has no such heading")
    if len(pages) < 30:
        wrong.append(f"only {len(pages)} pages were found: did the form of the book change?")
    return wrong


def main():
    command, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    wrong = {"prepare": prepare, "check": check}[command](directory)
    for line in wrong:
        print(f"FAILED site: {line}")
    sys.exit(bool(wrong))


main()
