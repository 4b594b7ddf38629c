package view

// Plural returns a number with its noun: "1 cluster", "2,000 clusters". The plural of the noun has an s.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(n) + " " + noun + "s"
}
