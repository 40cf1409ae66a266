package law

// FairQCount is how flows are counted where nothing says otherwise, on a switch and in experiments alike: by
// measurement (docs/fairq.md, Which flows count).
const FairQCount = "opening"
