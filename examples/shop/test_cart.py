from cart import cart_total


def test_small_orders_pay_shipping():
    assert cart_total([{"price": 10_00, "quantity": 1}]) == 14_95
