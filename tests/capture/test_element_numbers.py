

def test_a_known_number_prints_as_on_the_cpu() -> None:
    def function() -> str:
        return str(rushlight.tensor(1.5) * 0 + 2.0)

    assert rushlight.compile(function)() == function() == "tensor(2.)"
