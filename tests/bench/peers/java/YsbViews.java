import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.util.Utf8;

/**
 * Reads an event of the Yahoo Streaming Benchmark down to what is counted: the campaign and the
 * time of a view. For one thread.
 *
 * <p>Ads are looked up in a side table in memory. JSON goes through Jackson's streaming parser, the
 * whole text but only three values of it; of Avro only three fields are decoded.
 */
abstract class YsbViews {
    private static final String VIEW = "view";

    /** Number of the campaign of the view read last. */
    int campaign;

    /** Its event time, milliseconds. */
    long timeMs;

    /** Returns whether the value is a view of a known ad; then the fields are set. */
    abstract boolean read(byte[] value);

    /** {@code variant} is {@code json} or {@code avro}; {@code schema} is Avro's. */
    static YsbViews of(String variant, String schema, Side side) {
        return variant.equals("json")
                ? new Json(side)
                : new Avro(new Schema.Parser().parse(schema), side);
    }

    /** Ads and their campaigns, from a file of lines {@code ad,campaign}. */
    record Side(Map<String, Integer> campaignOf, List<String> campaigns) {
        static Side load(String file) throws IOException {
            Map<String, Integer> campaignOf = new HashMap<>();
            Map<String, Integer> numbers = new HashMap<>();
            List<String> campaigns = new ArrayList<>();
            for (String line : Files.readAllLines(Path.of(file))) {
                String[] pair = line.split(",");
                int number = numbers.computeIfAbsent(pair[1], id -> {
                    campaigns.add(id);
                    return campaigns.size() - 1;
                });
                campaignOf.put(pair[0], number);
            }
            return new Side(campaignOf, campaigns);
        }
    }

    private static final class Json extends YsbViews {
        private final JsonFactory factory = new JsonFactory();
        private final Map<String, Integer> campaignOf;

        Json(Side side) {
            campaignOf = side.campaignOf();
        }

        @Override
        boolean read(byte[] value) {
            String ad = null;
            String time = null;
            boolean view = false;
            try (JsonParser parser = factory.createParser(value)) {
                parser.nextToken();
                for (String name = parser.nextFieldName();
                        name != null;
                        name = parser.nextFieldName()) {
                    switch (name) {
                        case "ad_id" -> ad = parser.nextTextValue();
                        case "event_type" -> view = VIEW.equals(parser.nextTextValue());
                        case "event_time" -> time = parser.nextTextValue();
                        default -> parser.nextToken();
                    }
                }
                if (parser.currentToken() != JsonToken.END_OBJECT) {
                    throw new IllegalArgumentException("not a flat object");
                }
            } catch (IOException damaged) {
                throw new IllegalArgumentException("not JSON", damaged);
            }
            Integer found = view ? campaignOf.get(ad) : null;
            if (found == null) {
                return false;
            }
            campaign = found;
            timeMs = Long.parseLong(time);
            return true;
        }
    }

    private static final class Avro extends YsbViews {
        private static final Utf8 VIEW_BYTES = new Utf8(VIEW);
        private final Framed framed;
        private final Map<Utf8, Integer> campaignOf = new HashMap<>();
        private GenericRecord event;

        Avro(Schema written, Side side) {
            framed = new Framed(written, "ad_id", "event_type", "event_time");
            side.campaignOf().forEach((ad, number) -> campaignOf.put(new Utf8(ad), number));
        }

        @Override
        boolean read(byte[] value) {
            event = framed.read(value, event);
            Integer found =
                    VIEW_BYTES.equals(event.get(1)) ? campaignOf.get((Utf8) event.get(0)) : null;
            if (found == null) {
                return false;
            }
            campaign = found;
            timeMs = (Long) event.get(2);
            return true;
        }
    }
}
