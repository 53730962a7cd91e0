package proxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"mime"
	"strings"
)

// bodyDigest digests a body while it passes, in constant memory. Two bodies have the same
// digest if they have the same bytes; multipart bodies also if they differ only in their
// boundary, which clients draw anew for each try.
type bodyDigest interface {
	io.Writer
	// Sum ends the digest.
	Sum() string
}

// newBodyDigest returns the digest for a body of the given type.
func newBodyDigest(contentType string) bodyDigest {
	t, params, err := mime.ParseMediaType(contentType)
	if b := params["boundary"]; err == nil && strings.HasPrefix(t, "multipart/") && b != "" {
		return &multipartDigest{delimiter: []byte("--" + b), text: sha256.New(), cuts: sha256.New()}
	}
	return plainDigest{sha256.New()}
}

// plainDigest is of the bytes as they are.
type plainDigest struct{ hash.Hash }

// Sum implements bodyDigest.
func (d plainDigest) Sum() string { return hex.EncodeToString(d.Hash.Sum(nil)) }

// multipartDigest is of what stands between the delimiters, and of where they stand. So
// it does not depend on what the delimiter is.
type multipartDigest struct {
	delimiter []byte
	text      hash.Hash
	cuts      hash.Hash
	// held may be the beginning of a delimiter.
	held   []byte
	length uint64 // of the present piece
}

// Write implements io.Writer.
func (d *multipartDigest) Write(p []byte) (int, error) {
	n := len(p)
	if len(d.held) > 0 {
		p = append(d.held, p...)
		d.held = nil
	}
	for {
		i := bytes.Index(p, d.delimiter)
		if i < 0 {
			break
		}
		d.piece(p[:i])
		d.cut()
		p = p[i+len(d.delimiter):]
	}
	keep := min(len(p), len(d.delimiter)-1)
	for keep > 0 && !bytes.HasPrefix(d.delimiter, p[len(p)-keep:]) {
		keep--
	}
	d.piece(p[:len(p)-keep])
	d.held = bytes.Clone(p[len(p)-keep:])
	return n, nil
}

func (d *multipartDigest) piece(p []byte) {
	d.text.Write(p)
	d.length += uint64(len(p))
}

func (d *multipartDigest) cut() {
	d.cuts.Write(binary.BigEndian.AppendUint64(nil, d.length))
	d.length = 0
}

// Sum implements bodyDigest.
func (d *multipartDigest) Sum() string {
	d.piece(d.held)
	d.held = nil
	d.cut()
	return "multipart:" + hex.EncodeToString(d.cuts.Sum(d.text.Sum(nil)))
}
