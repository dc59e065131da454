"""What a page of a recording or a model holds, by Python's own readers."""

import base64
import gzip
import html.parser
import json


class Page(html.parser.HTMLParser):
    """request and file: None where the page does not compute."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self._in = [], {}, None
        self.text = ""  # what is read
        self.feed(text)
        self.close()
        self.request = json.loads(self.scripts["request"]) if "request" in self.scripts else None
        self.file = gzip.decompress(base64.b64decode(self.scripts["file"], validate=True)) if "file" in self.scripts else None

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._in = dict(attributes).get("id") if tag == "script" else None

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in:
            self.scripts[self._in] = self.scripts.get(self._in, "") + data
        else:
            self.text += data
