/* A directory of its own for a test, below $TMPDIR or /tmp. Failures end the program: no test can go on. */
#ifndef NJ_TESTS_SUPPORT_TEMPORARY_DIRECTORY_H
#define NJ_TESTS_SUPPORT_TEMPORARY_DIRECTORY_H

/* The new directory's absolute path; free it with temporary_directory_remove. */
char *temporary_directory_create(void);

/* Removes the directory with all that is in it and frees `path`. NULL does nothing. */
void temporary_directory_remove(char *path);

/* Removes a file or a whole directory; nothing there is fine. Symbolic links are not followed. */
void temporary_remove_tree(const char *path);

/* "DIRECTORY/NAME"; the caller frees it. */
char *temporary_path(const char *directory, const char *name);

/* Writes a file, replacing what is there. */
void temporary_write_file(const char *path, const void *from, unsigned long bytes);

#endif
