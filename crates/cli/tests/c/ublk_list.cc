// Lists /sys/class/ublk-char in every way a program may: a line each, which all have to be equal.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

static const char *const PLACE = "/sys/class/ublk-char";
typedef std::vector<std::string> Names;

static void need(bool holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

static void print(const char *way, Names names)
{
	std::sort(names.begin(), names.end());
	printf("%s:", way);
	for (auto &name : names)
		if (name != "." && name != "..")
			printf(" %s", name.c_str());
	printf("\n");
}

static Names of_stream(DIR *dir, const char *way)
{
	Names names;
	need(dir, way);
	while (struct dirent *entry = readdir(dir))
		names.push_back(entry->d_name);
	closedir(dir);
	return names;
}

static Names of_descriptor(int fd, const char *way)
{
	need(fd >= 0, way);
	alignas(8) char buffer[4096];
	Names names;
	long len;
	while ((len = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0)
		for (long at = 0; at < len; at += *(unsigned short *)(buffer + at + 16))
			names.push_back(buffer + at + 19);
	need(len == 0, way);
	close(fd);
	return names;
}

static Names of_scan(int count, struct dirent **entries, const char *way)
{
	need(count >= 0, way);
	Names names;
	for (int i = 0; i < count; i++)
		names.push_back(entries[i]->d_name);
	return names;
}

int main()
{
	struct stat st;
	struct dirent **entries;
	need(!access("/sys/module/ublk_drv", F_OK), "access");
	need(!stat("/sys/module/ublk_drv", &st) && S_ISDIR(st.st_mode), "stat of the module");
	need(!stat(PLACE, &st) && S_ISDIR(st.st_mode), "stat");
	need(open("/sys/class/ublk-characters", O_RDONLY) < 0, "another folder");
	need(open(PLACE, O_RDWR) < 0, "open for writing");
	print("opendir", of_stream(opendir(PLACE), "opendir"));
	print("fdopendir", of_stream(fdopendir(openat(AT_FDCWD, PLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC)), "fdopendir"));
	print("open, getdents64", of_descriptor(open(PLACE, O_RDONLY), "open"));
	print("openat, getdents64", of_descriptor(openat(AT_FDCWD, "/sys/class/ublk-char/", O_RDONLY | O_NONBLOCK), "openat"));
	int count = scandir(PLACE, &entries, NULL, alphasort);
	print("scandir", of_scan(count, entries, "scandir"));
	count = scandirat(AT_FDCWD, PLACE, &entries, NULL, alphasort);
	print("scandirat", of_scan(count, entries, "scandirat"));
	Names names, deep;
	for (auto &entry : std::filesystem::directory_iterator(PLACE))
		names.push_back(entry.path().filename());
	print("directory_iterator", names);
	for (auto &entry : std::filesystem::recursive_directory_iterator(PLACE))
		deep.push_back(entry.path().filename());
	print("recursive_directory_iterator", deep);
	return 0;
}
