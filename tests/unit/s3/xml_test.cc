// The fields read of a store's XML answers.
#include "s3/xml.h"

#include <gtest/gtest.h>

namespace kvbm_s3::xml_test {
namespace {

std::string read(std::string_view xml) {
  std::string out;
  const bool is_read = read_xml(xml, [&](std::string_view path, std::string_view text) {
    out.append(path).append("=").append(text).append(";");
  });
  return is_read ? out : "refused";
}

TEST(Xml, tells_each_element_with_its_text) {
  EXPECT_EQ(read("<?xml version=\"1.0\"?>\n<a x='1>2' y=\"<\"><b>1</b> <!-- <c> --><d/><b>2<e></e>3</b></a>\n"),
            "a/b=1;a/d=;a/b/e=;a/b=23;a= ;");
}

TEST(Xml, decodes_entities) {
  EXPECT_EQ(read("<a>&lt;&gt;&amp;&quot;&apos;&#65;&#x42;&#xe4;&#x20AC;&#x1F600;</a>"),
            "a=<>&\"'AB\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80;");
  EXPECT_EQ(read("<a><![CDATA[<b>&amp;]]></a>"), "a=<b>&amp;;");
}

TEST(Xml, refuses_what_no_store_answers) {
  for (const char* xml :
       {"", "text", "<a>", "</a>", "<a></b>", "<a></a><b></b>", "<a></a>text", "<a", "<a x='>", "<a>&nbsp;</a>",
        "<a>&#0;</a>", "<a>&#1114112;</a>", "<a>&#xZ;</a>", "<a>&</a>", "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
        "< a></ a>", "<a><![CDATA[x</a>", "<?xml", "<a><!-- </a>"}) {
    EXPECT_EQ(read(xml), "refused") << xml;
  }
  std::string deep;
  for (int i = 0; i < 17; ++i) deep += "<a>";
  for (int i = 0; i < 17; ++i) deep += "</a>";
  EXPECT_EQ(read(deep), "refused");
  EXPECT_EQ(read("<" + std::string(65, 'a') + "/>"), "refused");
}

TEST(Xml, takes_an_upload_for_completed_only_if_the_answer_says_so) {
  EXPECT_TRUE(
      is_completed("<?xml version=\"1.0\"?>\n<CompleteMultipartUploadResult xmlns=\"x\"><ETag>\"e-2\"</ETag>"
                   "</CompleteMultipartUploadResult>"));
  EXPECT_TRUE(is_completed("<CompleteMultipartUploadResult/>"));
  for (const char* body : {"", " ", "OK", "<Error><Code>InternalError</Code></Error>", "<Error><Code>InternalErr",
                           "<?xml version=\"1.0\"?>", "<CompleteMultipartUploadResult><ETag>", "<ok/>",
                           "<a><CompleteMultipartUploadResult/></a>"}) {
    EXPECT_FALSE(is_completed(body)) << body;
  }
}

TEST(Xml, reads_listings) {
  const auto list = parse_list(
      "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>x</Prefix>"
      "<IsTruncated>true</IsTruncated><EncodingType>url</EncodingType><Contents><Key>kv/a%26b+c%2B</Key><Size>1</"
      "Size></Contents>"
      "<Contents><Key>kv/d</Key><Owner><ID>Key</ID></Owner></Contents><CommonPrefixes><Prefix>no</Prefix></"
      "CommonPrefixes></ListBucketResult>");
  ASSERT_TRUE(list.has_value());
  EXPECT_EQ(list->keys, (std::vector<std::string>{"kv/a&b c+", "kv/d"}));
  EXPECT_TRUE(list->truncated);
  // The key is not URL-encoded, so it is taken as it is.
  const auto plain = parse_list("<ListBucketResult><Contents><Key>a%26&amp;</Key></Contents></ListBucketResult>");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->keys, std::vector<std::string>{"a%26&"});
  EXPECT_FALSE(plain->truncated);
  EXPECT_FALSE(parse_list("<Error><Code>NoSuchBucket</Code></Error>").has_value());
  EXPECT_FALSE(
      parse_list(
          "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%4</Key></Contents></ListBucketResult>")
          .has_value());
  EXPECT_FALSE(parse_list("<ListBucketResult><Contents><Key>a</Key>").has_value());
}

TEST(Xml, reads_errors_of_s3_and_sts) {
  const auto error = parse_error(
      "<?xml "
      "version='1.0'?><Error><Code>PermanentRedirect</Code><Message>m</Message><Endpoint>e</Endpoint><Region>r</"
      "Region></Error>");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code + error->message + error->endpoint + error->region, "PermanentRedirectmer");
  const auto sts =
      parse_error("<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code></Error></ErrorResponse>");
  ASSERT_TRUE(sts.has_value());
  EXPECT_EQ(sts->code, "AccessDenied");
  EXPECT_FALSE(parse_error("<html><body>Error</body></html>").has_value());
  EXPECT_FALSE(parse_error("").has_value());
}

TEST(Xml, knows_html) {
  EXPECT_TRUE(looks_like_html("\n <!DOCTYPE HTML PUBLIC>"));
  EXPECT_TRUE(looks_like_html("\xEF\xBB\xBF<HTML><p>"));
  EXPECT_FALSE(looks_like_html("<?xml version='1.0'?><Error/>"));
  EXPECT_FALSE(looks_like_html(""));
}

TEST(Xml, decodes_percent) {
  EXPECT_EQ(uri_decode("a%2Fb+c"), "a/b c");
  EXPECT_FALSE(uri_decode("%").has_value());
  EXPECT_FALSE(uri_decode("%1").has_value());
  EXPECT_FALSE(uri_decode("%zz").has_value());
  EXPECT_FALSE(uri_decode("%+1").has_value());
}

}  // namespace
}  // namespace kvbm_s3::xml_test
