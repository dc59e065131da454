"""How far a call is, on standard error: tqdm's bar where that is installed, else a line of ours."""

import sys


class Bar:
    """Called with the share that is done, of so many sentences."""

    def __init__(self, count):
        self.count, self.percent, self.bar = count, None, None
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return
        self.bar = tqdm(total=count, unit="sentence")

    def __call__(self, share):
        if self.bar is not None:
            self.bar.update(round(share * self.count) - self.bar.n)
        elif (percent := int(100 * share)) != self.percent and sys.stderr is not None:
            self.percent = percent
            sys.stderr.write(f"\r{percent:3} % of {self.count} sentences")
            sys.stderr.flush()

    def close(self):
        if self.bar is not None:
            self.bar.close()
        elif self.percent is not None:
            sys.stderr.write("\n")
