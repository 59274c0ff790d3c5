/** What the API says of maps and of the platform's state. */
export {};
