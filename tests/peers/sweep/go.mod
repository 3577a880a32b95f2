module numalign.io/tests/peers/sweep

go 1.26.0
