"""A shopping cart, small enough to review by eye."""

FREE_SHIPPING_FROM = 50_00  # cents
SHIPPING = 4_95


def line_total(price, quantity, discount_percent=0):
    total = price * quantity
    return total - total * discount_percent / 100


def cart_total(lines, shipping=SHIPPING, seen=[]):
    total = 0
    for line in lines:
        seen.append(line)
        total += line_total(line["price"], line["quantity"], line.get("discount", 0))
    if total > FREE_SHIPPING_FROM:
        shipping = 0
    return total + shipping
