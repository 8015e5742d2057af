"""``weft studio``: edit a cluster in the browser, and see comparisons as they come."""

from __future__ import annotations

import signal

import click

from weft.cli import options
from weft.cli.signals import Stopped, heed_signals

DEFAULT_TOPOLOGY = "torus:8x8"


@click.command(
    "studio",
    epilog=options.examples(
        "weft studio",
        "weft studio hosts:8,4,2 --port 8765",
        "weft studio cluster.toml --no-browser",
    ),
)
@click.argument("topology", default=DEFAULT_TOPOLOGY)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port of 127.0.0.1; 0 takes any that is free."
)
@click.option("--browser/--no-browser", default=True, help="Whether to open the page in a browser.")
def command(topology: str, port: int, browser: bool) -> None:
    """Edit a cluster in the browser, and see comparisons as they come.

    TOPOLOGY is a spec such as torus:8x8@bw=16GB/s,lat=150ns, a TOML file, what weft import
    reads, a plan, or - for one of these on standard input.

    The page is the one of weft report, live: cut, slow down or add a cable, choose size and algorithms, and
    the comparison begins anew. It is served on 127.0.0.1 to whoever has the printed address, which holds a
    secret. Ctrl-C ends it. Without a browser, weft compare --json gives the same results.
    """
    from weft.cli.inputs import obtain_topology
    from weft.studio.redirect_page import browser_opener
    from weft.studio.studio_server import choose_workers, serve_studio

    def ready(url: str) -> None:
        click.echo(f"weft studio: {url}")
        click.echo("Ctrl-C ends it.", err=True)
        if browser and not open_address(url):
            click.echo("no browser was found; open the address yourself", err=True)

    with heed_signals(), browser_opener() as open_address:
        number = serve_studio(obtain_topology(topology), port=port, workers=choose_workers(), ready=ready)
        if number != signal.SIGINT:
            raise Stopped(number)
