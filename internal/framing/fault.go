package framing

// Fault is what is wrong with the framing of a request. It is an error, and its text is fit for
// the caller. The zero value is none.
type Fault uint8

// The faults. Numbers in brackets are sections of RFC 9112, unless they say otherwise.
const (
	noFault Fault = iota
	// FaultLineEnd: a line of the head ends without CR LF, or has a CR within (2.2).
	FaultLineEnd
	// FaultEmptyLine: an empty line where a request should begin (2.2).
	FaultEmptyLine
	// FaultRequestLine: not method, target and HTTP/1.0 or 1.1 with single blanks (3).
	FaultRequestLine
	// FaultFold: a header goes on in the next line (5.2).
	FaultFold
	// FaultName: a header's name is empty or not a token (RFC 9110, 5.6.2).
	FaultName
	// FaultBlankName: a blank between a header's name and its colon (5.1).
	FaultBlankName
	// FaultControl: NUL or another control byte (RFC 9110, 5.5).
	FaultControl
	// FaultAlias: a header spelt with _ or . that some servers take for Content-Length,
	// Transfer-Encoding, Host or Upgrade.
	FaultAlias
	// FaultRepeated: one of these is there twice.
	FaultRepeated
	// FaultLength: a Content-Length that is not digits, or too large a number (6.3).
	FaultLength
	// FaultBothLengths: Content-Length beside Transfer-Encoding (6.1).
	FaultBothLengths
	// FaultCoding: a Transfer-Encoding other than chunked, or in HTTP/1.0 (6.1).
	FaultCoding
	// FaultHost: no Host in HTTP/1.1 (3.2).
	FaultHost
	// FaultChunkSize: a chunk's size is not 1 to 16 hexadecimal digits and CR LF (7.1).
	FaultChunkSize
	// FaultChunkExtension: something follows a chunk's size (7.1.1).
	FaultChunkExtension
	// FaultChunkEnd: a chunk's data are not followed by CR LF (7.1).
	FaultChunkEnd
	// FaultTrailer: a trailer named like what frames the request (RFC 9110, 6.5.1).
	FaultTrailer
	// FaultTooLarge: a head or the trailers are over their limit.
	FaultTooLarge
	// FaultNotJudged: the request follows one that asked to leave HTTP/1.
	FaultNotJudged
	// FaultCut: the connection ended in the middle of a head.
	FaultCut
	// FaultExpectation: something else than 100-continue is expected (RFC 9110, 10.1.1).
	FaultExpectation
	// FaultUnreadable: the head has one end, and net/http does not take what it says.
	FaultUnreadable
)

var faultTexts = [...]string{
	noFault:             "no fault",
	FaultLineEnd:        "a line of the head does not end with CR LF",
	FaultEmptyLine:      "an empty line stands where a request should begin",
	FaultRequestLine:    "the request line is not a method, a target and HTTP/1.1 or HTTP/1.0, with one blank between them",
	FaultFold:           "a header is folded over several lines; send it on one",
	FaultName:           "a header's name is not a token",
	FaultBlankName:      "a blank stands between a header's name and its colon",
	FaultControl:        "the head has a control byte",
	FaultAlias:          "a header looks like Content-Length, Transfer-Encoding, Host or Upgrade to some servers; spell it with dashes",
	FaultRepeated:       "Content-Length, Transfer-Encoding, Host or Upgrade is there twice; send it once",
	FaultLength:         "Content-Length is not a whole number in decimal digits",
	FaultBothLengths:    "Content-Length and Transfer-Encoding are both there; send one",
	FaultCoding:         "Transfer-Encoding is something else than chunked in an HTTP/1.1 request",
	FaultHost:           "Host is missing",
	FaultChunkSize:      "the size of a chunk is not 1 to 16 hexadecimal digits followed by CR LF",
	FaultChunkExtension: "a chunk has an extension; send none",
	FaultChunkEnd:       "the data of a chunk are not followed by CR LF",
	FaultTrailer:        "a trailer has a name that frames the request",
	FaultTooLarge:       "the head or the trailers are too large",
	FaultNotJudged:      "the request follows one that asked for an upgrade or a tunnel; open another connection",
	FaultCut:            "the connection ended in the middle of a head",
	FaultExpectation:    "the only expectation that can be met is 100-continue, sent once",
	FaultUnreadable:     "the target is no path or URL, Host is no host and port, or Trailer names a header that frames the request",
}

// Error implements error.
func (f Fault) Error() string {
	if int(f) < len(faultTexts) {
		return faultTexts[f]
	}
	return "unknown fault"
}
