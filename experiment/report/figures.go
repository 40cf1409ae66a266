package report

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"weir/experiment/result"
	"weir/internal/replace"
)

// Figure is one drawn figure.
type Figure struct {
	Name    string // of its files, without extension
	Title   string
	Caption string
	Of      string // the point on the axes that it shows, or "over AXIS"
	SVG     []byte
	Height  float64 // points
}

// Figures draws the document's figures into dir, each as NAME.svg and NAME.png. For each point on the axes it
// draws the distribution of completion times and the goodput per flow of each group, and the queue of each named
// port over time, all schemes in one picture. If a few long flows join and leave, it draws the rate of each of
// them over the queue, a picture for each scheme. The runs need their Detail: a document that was read from JSON
// gives no figures. The same document gives the same bytes.
func Figures(dir string, doc *result.Document) ([]Figure, error) {
	var out []Figure
	for _, p := range pictures(doc) {
		svg, err := p.svg()
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", p.name, err)
		}
		png, err := p.png()
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", p.name, err)
		}
		for ext, data := range map[string][]byte{".svg": svg, ".png": png} {
			if err := replace.Bytes(filepath.Join(dir, p.name+ext), 0o644, data); err != nil {
				return nil, err
			}
		}
		out = append(out, Figure{p.name, p.title, p.caption, p.of, svg, float64(p.height())})
	}
	return out, nil
}

// pictures returns the pictures to draw.
func pictures(doc *result.Document) []*picture {
	var out []*picture
	style := styles(doc)
	add := func(p *picture, of string) {
		if p != nil {
			p.of = of
			out = append(out, p)
		}
	}
	for _, p := range askedPictures(doc, style) {
		add(p, p.of)
	}
	for _, b := range blocks(doc) {
		for _, group := range groupNames(doc) {
			add(cdfPicture(doc, b, group, style), b.title)
		}
		for _, port := range portNames(doc) {
			add(queuePicture(doc, b, port, style), b.title)
			add(closeUpPicture(doc, b, port, style), b.title)
		}
		for _, group := range groupNames(doc) {
			if hasRates(doc, group) {
				add(goodputPicture(doc, b, group, style), b.title)
				add(ratePicture(doc, b, group, style), b.title)
			}
		}
		for _, p := range sharesPictures(doc, b) {
			add(p, b.title)
		}
	}
	out = append(out, axisPictures(doc, style)...)
	return slices.DeleteFunc(out, func(p *picture) bool { return len(p.curves) == 0 })
}

// look distinguishes curves: a colour for each scheme, dashes for each scheme in each world.
type look struct{ colour, dash int }

// plainLook is the look of a curve that needs no distinction in its picture.
var plainLook = look{colour: -1}

func (l look) color() color.NRGBA {
	if l == plainLook {
		return inkColor
	}
	return palette[l.colour]
}

// nthLook returns the look of the n-th curve of a picture. After the last colour, colours and dashes repeat in other
// combinations, so that 64 curves differ.
func nthLook(n int) look {
	return look{colour: n % len(palette), dash: (n + n/len(palette)) % len(dashes)}
}

// styles returns each scheme's look, the same in the whole document. After the last colour, colours and dashes
// repeat in other combinations.
func styles(doc *result.Document) func(*cell) look {
	schemes, worlds := schemeNames(doc), worldNames(doc)
	return func(c *cell) look {
		i := slices.Index(schemes, c.scheme)
		n := i*len(worlds) + slices.Index(worlds, c.world)
		return look{colour: i % len(palette), dash: (n + i/len(palette)) % len(dashes)}
	}
}

// at returns a title: "FCT of mice, guest_cc=cubic".
func at(what string, b *block) string {
	if b.title == "" {
		return what
	}
	return what + ", " + b.title
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9.=_-]+`)

// fileName returns a name for the files of a picture.
func fileName(parts ...string) string {
	var fit []string
	for _, p := range parts {
		if p = strings.Trim(unfit.ReplaceAllString(p, "_"), "_."); p != "" {
			fit = append(fit, p)
		}
	}
	return strings.Join(fit, "-")
}

// detailed returns the runs of a cell that can be drawn.
func detailed(c *cell) []*result.Run {
	return slices.DeleteFunc(slices.Clone(c.runs), func(r *result.Run) bool { return r.Detail == nil })
}

// seedsText returns the text if a cell has several seeds: it explains the thin lines or the band.
func seedsText(doc *result.Document, several string) string {
	for _, b := range blocks(doc) {
		for _, c := range b.cells {
			if len(c.runs) > 1 {
				return several
			}
		}
	}
	return ""
}

func (p *picture) svg() ([]byte, error) {
	c := vgsvg.NewWith(vgsvg.UseWH(figureWidth, p.height()))
	p.draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	text := fontFallback.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans, Arial, Helvetica, sans-serif"))
	return pathData.ReplaceAllFunc(text, func(d []byte) []byte { return fraction.ReplaceAll(d, []byte("$1")) }), nil
}

// Paths are drawn to a tenth of a point: further digits would be half of the file.
var (
	pathData = regexp.MustCompile(` d="[^"]*"`)
	fraction = regexp.MustCompile(`(\.\d)\d+`)
)

// fontFallback matches the fonts of an SVG: machines without Liberation have Arial, which has the same widths.
var fontFallback = regexp.MustCompile(`font-family:[^;"]*`)

func (p *picture) png() ([]byte, error) {
	c := vgimg.NewWith(vgimg.UseWH(figureWidth, p.height()), vgimg.UseDPI(144), vgimg.UseBackgroundColor(color.White))
	p.draw(draw.New(c))
	var b bytes.Buffer
	// A third to a half of the default's time, for files that are 5 % larger.
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, c.Image()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// logWorthy reports whether values are better shown on a logarithmic axis.
func logWorthy(low, high float64) bool { return low > 0 && high/low > 50 }

// roundUp returns the end of an axis that shows v with a little room.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	v *= 1.04
	step := math.Pow(10, math.Floor(math.Log10(v))) / 4
	return math.Ceil(v/step) * step
}
