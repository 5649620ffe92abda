"""The page of `report`: one HTML file that fetches nothing and runs nothing."""
