package restoreguard

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// identify returns the inode and the time of birth of a file. It ignores the number of the device, because that changes
// when a volume is mounted elsewhere.
func identify(path string) (identity, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return identity{}, fmt.Errorf("look at %s: %w", path, err)
	}
	is := identity{Inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		is.Born = st.Btime.Sec*int64(time.Second) + int64(st.Btime.Nsec)
	}
	return is, nil
}

// unlasting returns why the inodes of a directory's files do not last, "" if they last. Some file systems invent new
// inodes at every mount.
func unlasting(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return ""
	}
	names := map[uint32]string{
		unix.FUSE_SUPER_MAGIC: "a FUSE file system", unix.V9FS_MAGIC: "a 9p file system", unix.CIFS_SUPER_MAGIC: "a CIFS share",
		unix.SMB2_SUPER_MAGIC: "an SMB share", unix.SMB_SUPER_MAGIC: "an SMB share", unix.MSDOS_SUPER_MAGIC: "a FAT file system",
		unix.EXFAT_SUPER_MAGIC: "an exFAT file system",
	}
	if name, ok := names[uint32(st.Type)]; ok {
		return "it is on " + name + ", whose files have no lasting numbers"
	}
	return ""
}
