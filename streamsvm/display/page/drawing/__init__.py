"""What a page is drawn with: elements that make text harmless, axes, charts, the style, and the document around them."""
