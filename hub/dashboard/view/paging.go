package view

import "strconv"

// Pager is the part of a long list that a page shows, and the addresses of the others.
type Pager struct {
	// From and To are the numbers of the first and the last entry that is shown, from 1, of Total.
	From, To, Total int
	// What the entries are, in the plural: "clusters".
	What string
	// Newer and Older are the addresses of the parts before and after this one; empty at the ends.
	Newer, Older string
}

// Shown is the text of what is shown: "101 to 200 of 1,000 clusters".
func (p Pager) Shown() string {
	if p.Total == 0 {
		return "0 " + p.What
	}
	if p.From == 1 && p.To == p.Total {
		return grouped(p.Total) + " " + p.What
	}
	return grouped(p.From) + " to " + grouped(p.To) + " of " + grouped(p.Total) + " " + p.What
}

// paged returns the part of a list that the page of a Query shows, and its Pager. The page is the last one when the
// list has become shorter.
func paged[T any](all []T, q Query, path, what string, size int) ([]T, Pager) {
	last := max(1, (len(all)+size-1)/size)
	at := min(max(q.Page, 1), last)
	begin, end := (at-1)*size, min(len(all), at*size)
	p := Pager{From: begin + 1, To: end, Total: len(all), What: what}
	address := func(page int) string {
		other := q
		other.Page = page
		return other.At(path)
	}
	if at > 1 {
		p.Newer = address(at - 1)
	}
	if at < last {
		p.Older = address(at + 1)
	}
	return all[begin:end], p
}

// grouped writes a number with a comma between its thousands.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
