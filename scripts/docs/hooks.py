"""What mkdocs does besides (mkdocs.yml): the navigation takes in the pages that stage.py wrote, and the library's names lead to where
they are described: types in declarations of the references, and names in full (`attend::KvCache`, `attend.Model.embed()`,
`attend/ring.h`) in the other documents."""

import json
import pathlib
import posixpath
import re

CODE = re.compile(r'<(?:div|code) class="[^"]*\bhighlight\b[^"]*">.*?</code>', re.DOTALL)
NAME = re.compile(r'<span class="(?:n|nc|nb|nf|fm)">(\w+)</span>')
FULL = re.compile(r"<(a|pre|h\d)\b.*?</\1>|<code>(attend(?:::|\.|/)[\w:.]*\w)((?:\([^<]*\))?)</code>", re.DOTALL)
staged = {}


def on_config(config):
    staged.update(json.loads((pathlib.Path(config.docs_dir) / "navigation.json").read_text()))
    config.nav = filled(config.nav)
    config.extra["polyfills"] = ["assets/worker.js"]  # in place of one that the plugin `offline` would load from elsewhere
    return config


def filled(entries):
    """What ends with a slash is a folder, whose pages stand in its place."""
    out = []
    for entry in entries:
        if isinstance(entry, dict):
            out += [{title: filled(below) if isinstance(below, list) else staged["navigation"][below] if below.endswith("/") else below}
                    for title, below in entry.items()]
        else:
            out += staged["navigation"][entry] if entry.endswith("/") else [entry]
    return out


def on_page_content(html, page, config, files):
    language = re.match(r"reference/(cpp|python)/", page.file.src_uri)
    if not language:
        return FULL.sub(lambda found: led(found, posixpath.dirname(page.file.dest_uri) or "."), html)
    types = staged["types"][language[1]]

    def link(found):
        place = types.get(found[1])
        return f'<a href="{place}">{found[0]}</a>' if place else found[0]

    return CODE.sub(lambda code: NAME.sub(link, code[0]), html)


def led(found, folder):
    """A name, seen from a folder of the site, as a link."""
    place = staged["places"].get(found[2])
    return f'<a href="{posixpath.relpath(place, folder)}">{found[0]}</a>' if place else found[0]


def on_post_build(config):
    site = pathlib.Path(config.site_dir)
    (site / "404.html").unlink()  # it names its files from the root of a host
    for name in ("navigation.json", "sitemap.xml", "sitemap.xml.gz"):  # a sitemap is empty where nobody knows the site's address
        (site / name).unlink()
