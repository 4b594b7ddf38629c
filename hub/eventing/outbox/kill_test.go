package outbox_test

func child() bool { return false }
