/** What the API says of collections, as far as this page reads it. */
export {};
