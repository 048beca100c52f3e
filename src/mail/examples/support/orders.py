"""The orders of a shop that does not exist."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Order:
    """An order; ``cents`` is its price."""

    number: str
    article: str
    cents: int
    state: str

    @property
    def price(self) -> str:
        """The price in euros."""
        return f"{self.cents // 100}.{self.cents % 100:02d} EUR"


ORDERS: Final[Mapping[str, Order]] = MappingProxyType(
    {
        order.number: order
        for order in (
            Order("A-1001", "a desk lamp", 4990, "delivered"),
            Order("A-1002", "two coffee mugs", 1880, "on its way"),
            Order("A-1003", "a wool blanket", 7950, "delivered"),
            Order("A-1004", "a wall clock", 3500, "being packed"),
        )
    }
)
"""All orders by number."""
