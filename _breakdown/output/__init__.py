"""Declare the fields of answers, and present answers as text, Markdown, CSV or an HTML page. This
package uses only the answers and never imports the class `Step`."""
