package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// tokenBytes is how many random bytes a token has. So much cannot be guessed, which is
// why one round of SHA-256 is enough to keep it by.
const tokenBytes = 32

func newTokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "token FILE",
		Short: "Make a bearer token, and the hash of it for the auth file",
		Long: `Write a new random token to FILE, for its owner's eyes only, and print the line that the auth file needs. The token
itself is shown nowhere. A file that exists is left alone: what is in it may be in use.`,
		Example: `  fenceproxy token billing.token
  fenceproxy job list --token-file billing.token`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw := make([]byte, tokenBytes)
			_, _ = rand.Read(raw) // never fails
			token := hex.EncodeToString(raw)
			f, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return fmt.Errorf("write token: %w", err)
			}
			_, err = f.WriteString(token + "\n")
			if err = errors.Join(err, f.Close()); err != nil {
				_ = os.Remove(args[0]) // the error above is the one that matters
				return fmt.Errorf("write token: %w", err)
			}
			return put(cmd.OutOrStdout(), fmt.Sprintf("token_sha256: \"%x\"\n", sha256.Sum256([]byte(token))))
		},
	}
}
