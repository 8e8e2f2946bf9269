import java.io.File;
import java.nio.file.Path;

/** What engines keep on disk while they run. */
final class Folders {
    private Folders() {}

    /** Deletes a folder and all in it; what an engine that still ends deletes itself is no error. */
    static void delete(Path folder) {
        delete(folder.toFile());
    }

    private static void delete(File file) {
        File[] inside = file.listFiles();
        if (inside != null) {
            for (File one : inside) {
                delete(one);
            }
        }
        file.delete();
    }
}
