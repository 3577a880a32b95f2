module numalign.io/tests/peers/hog

go 1.26.0
