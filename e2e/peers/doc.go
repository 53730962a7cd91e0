// Package peers holds tests with programs that know nothing of fenceproxy, before and behind it: curl, nghttp, git, rclone,
// restic, wsdump, a gRPC client and server, nginx with WebDAV, an S3 server. Each is used as it was released, and each is
// overtaken in the middle of its work.
//
// `make peers` gets them. They are programs of Linux, so the tests are built only there.
package peers
